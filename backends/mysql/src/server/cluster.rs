//! Clusters in which every node accepts writes: Galera, and a replication group without a primary.

/// The global variables of a node of such a cluster, with the value that says it.
const SEVERAL_WRITERS: [(&str, &str); 2] = [("wsrep_on", "ON"), ("group_replication_single_primary_mode", "OFF")];

/// The names of these variables, as a list in a statement. A server shows those that it knows.
pub(crate) fn variables() -> String {
    SEVERAL_WRITERS.map(|(variable, _)| format!("'{variable}'")).join(", ")
}

/// Whether this variable says that the server is a node of such a cluster.
pub(crate) fn has_several_writers(variable: &str, value: &str) -> bool {
    SEVERAL_WRITERS.contains(&(variable, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_of_a_cluster_with_several_writers_is_known_by_its_variables() {
        for (variable, value, several) in [
            ("wsrep_on", "ON", true),
            ("wsrep_on", "OFF", false),
            ("group_replication_single_primary_mode", "OFF", true),
            ("group_replication_single_primary_mode", "ON", false),
            ("innodb_flush_log_at_trx_commit", "ON", false),
            ("read_only", "OFF", false),
        ] {
            assert_eq!(has_several_writers(variable, value), several, "{variable} = {value}");
            assert!(!several || variables().contains(&format!("'{variable}'")), "it is not asked for {variable}");
        }
    }
}
