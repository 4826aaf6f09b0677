import static java.nio.charset.StandardCharsets.UTF_8;

import io.etcd.jetcd.ByteSequence;
import io.etcd.jetcd.Client;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;

/**
 * jetcd's Lock beside dlock: so many leases want one name. It is the server's own lock service.
 *
 * <p>Waits for a line on its input or for its end, so that all begin together; then tells its holds and its failures.
 * Arguments: endpoint, name, counter, number of leases, seconds.
 */
public final class Jetcd {
  public static void main(String[] arguments) throws Exception {
    try (Client client = Client.builder().endpoints(arguments[0]).build()) {
      ByteSequence name = ByteSequence.from(arguments[1], UTF_8);
      ByteSequence counter = ByteSequence.from(arguments[2], UTF_8);
      int number = Integer.parseInt(arguments[3]);
      long seconds = Long.parseLong(arguments[4]);
      List<Long> leases = new ArrayList<>();
      for (int at = 0; at < number; at++) {
        leases.add(client.getLeaseClient().grant(seconds + 60).get().getID());
      }
      System.out.println("up");
      System.in.read();
      long end = System.nanoTime() + seconds * 1_000_000_000L;
      List<Callable<Integer>> tasks = new ArrayList<>();
      for (long lease : leases) {
        tasks.add(
            () -> {
              int holds = 0;
              while (System.nanoTime() < end) {
                ByteSequence key = client.getLockClient().lock(name, lease).get().getKey();
                count(client, counter);
                client.getLockClient().unlock(key).get();
                holds++;
              }
              return holds;
            });
      }
      int sum = 0;
      var threads = Executors.newFixedThreadPool(number);
      for (Future<Integer> holds : threads.invokeAll(tasks)) {
        sum += holds.get();
      }
      threads.shutdown();
      System.out.println("seen " + sum + " 0");
    }
  }

  /** Counts in two steps, which only the lock keeps together. */
  private static void count(Client client, ByteSequence counter) throws Exception {
    var found = client.getKVClient().get(counter).get().getKvs();
    int before = found.isEmpty() ? 0 : Integer.parseInt(found.get(0).getValue().toString(UTF_8));
    Thread.sleep(1);
    client.getKVClient().put(counter, ByteSequence.from(Integer.toString(before + 1), UTF_8)).get();
  }
}
