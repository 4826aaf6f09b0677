// Sets the counter of a node's children in the data of a server that is down: the folder, the path, the counter.
import java.io.File;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.zookeeper.server.DataTree;
import org.apache.zookeeper.server.persistence.FileTxnSnapLog;

public class Counter {
    public static void main(String[] args) throws Exception {
        File folder = new File(args[0]);
        FileTxnSnapLog log = new FileTxnSnapLog(folder, folder);
        DataTree tree = new DataTree();
        ConcurrentHashMap<Long, Integer> sessions = new ConcurrentHashMap<>();
        log.restore(tree, sessions, (header, record, digest) -> {});
        tree.setCversionPzxid(args[1], Integer.parseInt(args[2]), tree.lastProcessedZxid);
        log.save(tree, sessions, true);
        log.close();
    }
}
