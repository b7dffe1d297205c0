import java.io.BufferedReader;
import java.io.File;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.atomic.AtomicReference;
import javax.sql.DataSource;
import org.apache.shardingsphere.driver.api.yaml.YamlShardingSphereDataSourceFactory;

/**
 * Clients of ShardingSphere-JDBC with XA transactions, for the benchmarks of distant nodes.
 *
 * <p>Arguments: ShardingSphere's configuration, and a folder with a file of transactions for each
 * client (`transaction.rs` writes them). A client runs its transactions in turn, and begins again
 * after the last one. Says "ready" when all clients are connected, waits for a line with the
 * milliseconds of warm-up and of the time that counts, and prints in the end what was seen.
 */
public final class GeoXa {
    /** A statement, what it must do, and its parameters; `from` is the step whose result one is, or -1. */
    private record Step(char kind, int rows, String sql, long[] values, int[] from) {}

    /** What a client has seen. */
    private static final class Seen {
        long acknowledged;
        long transactions;
        final List<Long> latencies = new ArrayList<>();
        final Map<String, Long> refusals = new TreeMap<>();
    }

    /** When a run counts, in nanoseconds. */
    private record Clock(long begin, long end) {}

    private static final AtomicReference<Clock> CLOCK = new AtomicReference<>();
    private static final AtomicReference<Throwable> FAILURE = new AtomicReference<>();

    private GeoXa() {}

    public static void main(String[] arguments) throws Exception {
        DataSource source = YamlShardingSphereDataSourceFactory.createDataSource(new File(arguments[0]));
        int clients = new File(arguments[1]).list().length;
        CyclicBarrier ready = new CyclicBarrier(clients + 1);
        CyclicBarrier start = new CyclicBarrier(clients + 1);
        List<Seen> all = new ArrayList<>();
        List<Thread> threads = new ArrayList<>();
        for (int number = 0; number < clients; number++) {
            Path file = Path.of(arguments[1], Integer.toString(number));
            Seen seen = new Seen();
            all.add(seen);
            Thread thread = new Thread(() -> client(source, file, seen, ready, start));
            thread.start();
            threads.add(thread);
        }
        ready.await();
        System.out.println("ready");
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        String line = input.readLine();
        if (line == null) {
            System.exit(1);
        }
        String[] times = line.split(" ");
        long begin = System.nanoTime() + Long.parseLong(times[0]) * 1_000_000;
        CLOCK.set(new Clock(begin, begin + Long.parseLong(times[1]) * 1_000_000));
        start.await();
        for (Thread thread : threads) {
            thread.join();
        }
        tell(all);
        System.out.flush();
        // Not all threads of the libraries end by themselves.
        System.exit(0);
    }

    private static void tell(List<Seen> all) {
        Throwable failure = FAILURE.get();
        if (failure != null) {
            failure.printStackTrace();
            System.out.println("failed\t" + failure.toString().replaceAll("\\s+", " "));
            return;
        }
        for (Seen seen : all) {
            System.out.println("acknowledged\t" + seen.acknowledged);
            System.out.println("transactions\t" + seen.transactions);
            for (Map.Entry<String, Long> refusal : seen.refusals.entrySet()) {
                System.out.println("refused\t" + refusal.getKey() + "\t" + refusal.getValue());
            }
            for (long latency : seen.latencies) {
                System.out.println("latency\t" + latency);
            }
        }
        System.out.println("end");
    }

    private static void client(
            DataSource source, Path file, Seen seen, CyclicBarrier ready, CyclicBarrier start) {
        try {
            Throwable early = null;
            List<Step[]> transactions = null;
            Connection connection = null;
            try {
                transactions = read(file);
                connection = source.getConnection();
                firstLook(connection, transactions);
            } catch (SQLException | IOException | RuntimeException error) {
                early = error;
            }
            ready.await();
            start.await();
            if (early != null) {
                FAILURE.compareAndSet(null, early);
                return;
            }
            run(source, connection, transactions, CLOCK.get(), seen);
        } catch (Exception error) {
            FAILURE.compareAndSet(null, error);
        }
    }

    /** Connects to the nodes of the first transactions, by what they read. */
    private static void firstLook(Connection connection, List<Step[]> transactions) throws SQLException {
        connection.setAutoCommit(false);
        for (Step[] transaction : transactions.subList(0, Math.min(12, transactions.size()))) {
            for (Step step : transaction) {
                if (step.kind == 'r') {
                    send(connection, step, new long[0]);
                }
            }
        }
        connection.commit();
    }

    private static void run(
            DataSource source, Connection first, List<Step[]> transactions, Clock clock, Seen seen)
            throws SQLException {
        Connection connection = first;
        for (int number = 0; System.nanoTime() < clock.end && FAILURE.get() == null; number++) {
            Step[] transaction = transactions.get(number % transactions.size());
            long began = System.nanoTime();
            boolean counts = began >= clock.begin;
            while (true) {
                try {
                    attempt(connection, transaction);
                    break;
                } catch (SQLException error) {
                    String code = refusal(error);
                    if (code == null) {
                        throw error;
                    }
                    if (counts) {
                        seen.refusals.merge(code, 1L, Long::sum);
                    }
                    connection = rolledBack(source, connection);
                }
                if (System.nanoTime() >= clock.end) {
                    connection.close();
                    return;
                }
            }
            long ended = System.nanoTime();
            seen.acknowledged++;
            if (counts) {
                seen.latencies.add((ended - began) / 1000);
                if (ended < clock.end) {
                    seen.transactions++;
                }
            }
        }
        connection.close();
    }

    private static void attempt(Connection connection, Step[] transaction) throws SQLException {
        if (transaction.length == 1) {
            connection.setAutoCommit(true);
            send(connection, transaction[0], new long[0]);
            return;
        }
        connection.setAutoCommit(false);
        long[] results = new long[transaction.length];
        for (int number = 0; number < transaction.length; number++) {
            results[number] = send(connection, transaction[number], results);
        }
        connection.commit();
    }

    /**
     * The connection to go on with. A COMMIT that has failed at a node may have ended the transaction,
     * which Atomikos says with an IllegalStateException: then it is another connection.
     */
    private static Connection rolledBack(DataSource source, Connection connection) throws SQLException {
        if (connection.getAutoCommit()) {
            return connection;
        }
        try {
            connection.rollback();
            return connection;
        } catch (IllegalStateException error) {
            connection.close();
            return source.getConnection();
        }
    }

    /** What the step returns, 0 if nothing. */
    private static long send(Connection connection, Step step, long[] results) throws SQLException {
        try (PreparedStatement statement = connection.prepareStatement(step.sql)) {
            for (int place = 0; place < step.values.length; place++) {
                int from = step.from[place];
                statement.setLong(place + 1, from < 0 ? step.values[place] : results[from]);
            }
            int found = 0;
            long result = 0;
            if (step.kind == 'w') {
                found = statement.executeUpdate();
            } else {
                try (ResultSet rows = statement.executeQuery()) {
                    while (rows.next()) {
                        found++;
                        result = rows.getLong(1);
                    }
                }
            }
            if (found != step.rows) {
                throw new IllegalStateException(found + " rows and not " + step.rows + ": " + step.sql);
            }
            return result;
        }
    }

    /** The SQLSTATE after which a transaction is tried again; null: it has failed otherwise. */
    private static String refusal(SQLException error) {
        for (Throwable cause = error; cause != null; cause = cause.getCause()) {
            if (cause instanceof SQLException sql && sql.getSQLState() != null) {
                String code = sql.getSQLState();
                if (code.startsWith("40") && !code.equals("40003") || code.equals("55P03")) {
                    return code;
                }
            }
        }
        return null;
    }

    private static List<Step[]> read(Path file) throws IOException {
        List<Step[]> transactions = new ArrayList<>();
        try (BufferedReader lines = Files.newBufferedReader(file)) {
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                Step[] steps = new Step[Integer.parseInt(line)];
                for (int number = 0; number < steps.length; number++) {
                    steps[number] = step(lines.readLine().split("\t"));
                }
                transactions.add(steps);
            }
        }
        return transactions;
    }

    private static Step step(String[] fields) {
        int count = Integer.parseInt(fields[2]);
        long[] values = new long[count];
        int[] from = new int[count];
        for (int place = 0; place < count; place++) {
            String value = fields[3 + place];
            boolean isResult = value.startsWith("=");
            from[place] = isResult ? Integer.parseInt(value.substring(1)) : -1;
            values[place] = isResult ? 0 : Long.parseLong(value);
        }
        String sql = fields[3 + count].intern();
        return new Step(fields[0].charAt(0), Integer.parseInt(fields[1]), sql, values, from);
    }
}
