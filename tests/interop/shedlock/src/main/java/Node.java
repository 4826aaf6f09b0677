import com.zaxxer.hikari.HikariConfig;
import com.zaxxer.hikari.HikariDataSource;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.sql.Connection;
import java.sql.SQLException;
import java.sql.Statement;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import net.javacrumbs.shedlock.core.LockConfiguration;
import net.javacrumbs.shedlock.core.LockProvider;
import net.javacrumbs.shedlock.core.SimpleLock;
import net.javacrumbs.shedlock.provider.jdbctemplate.JdbcTemplateLockProvider;
import org.springframework.jdbc.core.JdbcTemplate;

/**
 * A node that takes locks by ShedLock, as lines on its standard input say. Each line has one answer on its standard output.
 *
 * <pre>
 * lock NAME AT_MOST_MS AT_LEAST_MS   yes or no
 * extend NAME AT_MOST_MS             yes or no
 * unlock NAME                        done
 * count NAME TABLE SECONDS THREADS   how often these threads had the lock; each hold counts up the table's number
 * </pre>
 */
public final class Node {
    private final HikariDataSource pool;
    private final LockProvider provider;
    private final Map<String, SimpleLock> held = new HashMap<>();

    private Node(String url, String user, boolean databaseTime) {
        HikariConfig config = new HikariConfig();
        config.setJdbcUrl(url);
        config.setUsername(user);
        config.setPassword("");
        config.setMaximumPoolSize(8);
        pool = new HikariDataSource(config);
        JdbcTemplateLockProvider.Configuration.Builder builder =
                JdbcTemplateLockProvider.Configuration.builder().withJdbcTemplate(new JdbcTemplate(pool));
        provider = new JdbcTemplateLockProvider(
                (databaseTime ? builder.usingDbTime() : builder.forceUtcTimeZone()).build());
    }

    public static void main(String[] arguments) throws Exception {
        Node node = new Node(arguments[0], arguments[1], arguments[2].equals("database-time"));
        System.out.println("up");
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            System.out.println(node.answer(line.split(" ")));
        }
    }

    private String answer(String[] words) throws Exception {
        switch (words[0]) {
            case "lock":
                return kept(words[1], lock(words[1], Long.parseLong(words[2]), Long.parseLong(words[3])));
            case "extend":
                Duration most = Duration.ofMillis(Long.parseLong(words[2]));
                return kept(words[1], held.remove(words[1]).extend(most, Duration.ZERO));
            case "unlock":
                held.remove(words[1]).unlock();
                return "done";
            case "count":
                return Long.toString(count(words[1], words[2], Long.parseLong(words[3]), Integer.parseInt(words[4])));
            default:
                throw new IllegalArgumentException(words[0]);
        }
    }

    private Optional<SimpleLock> lock(String name, long most, long least) {
        Duration atMost = Duration.ofMillis(most);
        return provider.lock(new LockConfiguration(Instant.now(), name, atMost, Duration.ofMillis(least)));
    }

    private String kept(String name, Optional<SimpleLock> lock) {
        lock.ifPresent(one -> held.put(name, one));
        return lock.isPresent() ? "yes" : "no";
    }

    private long count(String name, String table, long seconds, int threads) throws Exception {
        long end = System.nanoTime() + seconds * 1_000_000_000L;
        ExecutorService executor = Executors.newFixedThreadPool(threads);
        List<Future<Long>> counts = new ArrayList<>();
        for (int thread = 0; thread < threads; thread++) {
            counts.add(executor.submit((Callable<Long>) () -> {
                long holds = 0;
                while (System.nanoTime() < end) {
                    Optional<SimpleLock> lock = lock(name, 60_000, 0);
                    if (lock.isPresent()) {
                        countUp(table);
                        lock.get().unlock();
                        holds++;
                    }
                    Thread.sleep(2);
                }
                return holds;
            }));
        }
        long holds = 0;
        for (Future<Long> count : counts) {
            holds += count.get();
        }
        executor.shutdown();
        return holds;
    }

    /** By a read and a write, so two holders at a time would lose a count. */
    private void countUp(String table) throws SQLException, InterruptedException {
        try (Connection connection = pool.getConnection(); Statement statement = connection.createStatement()) {
            long number;
            try (var rows = statement.executeQuery("SELECT number FROM " + table)) {
                rows.next();
                number = rows.getLong(1);
            }
            Thread.sleep(1);
            statement.executeUpdate("UPDATE " + table + " SET number = " + (number + 1));
        }
    }
}
