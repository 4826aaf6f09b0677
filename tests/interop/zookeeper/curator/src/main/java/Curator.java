import static java.nio.charset.StandardCharsets.UTF_8;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessLock;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.retry.RetryOneTime;

/**
 * Curator's locks beside dlock: so many threads want one lock, or read and write under one.
 *
 * <p>Waits for a line on its input or for its end, so that all begin together; then tells its holds that counted, and its
 * failures: calls that gave up, and readers that saw a writer. Arguments: hosts, path of the lock, path of the counter,
 * `lock` or `readwrite`, number of threads, seconds.
 */
public final class Curator {
  private static CuratorFramework client;
  private static String counter;

  public static void main(String[] arguments) throws Exception {
    client = CuratorFrameworkFactory.newClient(arguments[0], new RetryOneTime(100));
    client.start();
    client.blockUntilConnected();
    counter = arguments[2];
    boolean reads = arguments[3].equals("readwrite");
    int number = Integer.parseInt(arguments[4]);
    long seconds = Long.parseLong(arguments[5]);
    System.out.println("up");
    System.in.read();
    long end = System.nanoTime() + seconds * 1_000_000_000L;
    List<Callable<int[]>> tasks = new ArrayList<>();
    for (int at = 0; at < number; at++) {
      tasks.add(() -> take(arguments[1], reads, end));
    }
    int[] sum = {0, 0};
    var threads = Executors.newFixedThreadPool(number);
    for (Future<int[]> task : threads.invokeAll(tasks)) {
      sum[0] += task.get()[0];
      sum[1] += task.get()[1];
    }
    threads.shutdown();
    System.out.println("seen " + sum[0] + " " + sum[1]);
    client.close();
  }

  private static int[] take(String path, boolean reads, long end) throws Exception {
    var both = new InterProcessReadWriteLock(client, path);
    InterProcessLock alone = reads ? both.writeLock() : new InterProcessMutex(client, path);
    int holds = 0;
    int failures = 0;
    while (System.nanoTime() < end) {
      if (reads) {
        if (both.readLock().acquire(30, TimeUnit.SECONDS)) {
          int before = number();
          Thread.sleep(1);
          failures += number() == before ? 0 : 1;
          both.readLock().release();
        } else {
          failures++;
        }
      }
      if (alone.acquire(30, TimeUnit.SECONDS)) {
        // Counts in two steps, which only the lock keeps together.
        int before = number();
        Thread.sleep(1);
        client.setData().forPath(counter, Integer.toString(before + 1).getBytes(UTF_8));
        alone.release();
        holds++;
      } else {
        failures++;
      }
    }
    return new int[] {holds, failures};
  }

  private static int number() throws Exception {
    return Integer.parseInt(new String(client.getData().forPath(counter), UTF_8));
  }
}
