// Orders on the standard input, one line each: `lock`, `read` or `write` to take, with a time limit in seconds, and `free`.
// The answer is `yes` or `no`.
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessLock;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.retry.RetryOneTime;

public class Curator {
    public static void main(String[] args) throws Exception {
        CuratorFramework client = CuratorFrameworkFactory.newClient(args[0], new RetryOneTime(100));
        client.start();
        InterProcessLock held = null;
        BufferedReader orders = new BufferedReader(new InputStreamReader(System.in));
        for (String line = orders.readLine(); line != null; line = orders.readLine()) {
            String[] words = line.split(" ");
            boolean answer = true;
            if (words[0].equals("free")) {
                held.release();
            } else {
                InterProcessReadWriteLock both = new InterProcessReadWriteLock(client, args[1]);
                InterProcessLock lock = words[0].equals("lock") ? new InterProcessMutex(client, args[1])
                    : words[0].equals("read") ? both.readLock() : both.writeLock();
                answer = lock.acquire(Long.parseLong(words[1]), TimeUnit.SECONDS);
                held = answer ? lock : held;
            }
            System.out.println(answer ? "yes" : "no");
        }
    }
}
