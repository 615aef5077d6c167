package segue;

import com.sun.management.OperatingSystemMXBean;
import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.time.LocalDateTime;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.serialization.AbstractDeserializationSchema;
import org.apache.flink.api.common.serialization.DeserializationSchema;
import org.apache.flink.api.connector.sink2.Sink;
import org.apache.flink.api.connector.sink2.SinkWriter;
import org.apache.flink.api.connector.sink2.WriterInitContext;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.formats.common.TimestampFormat;
import org.apache.flink.formats.csv.CsvRowDataDeserializationSchema;
import org.apache.flink.formats.json.JsonParserRowDataDeserializationSchema;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.annotation.JsonFormat;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.annotation.JsonPropertyOrder;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.ObjectReader;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.json.JsonMapper;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.dataformat.csv.CsvMapper;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.datatype.jsr310.JavaTimeModule;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.table.data.RowData;
import org.apache.flink.table.runtime.typeutils.InternalTypeInfo;
import org.apache.flink.table.types.logical.DoubleType;
import org.apache.flink.table.types.logical.IntType;
import org.apache.flink.table.types.logical.LogicalType;
import org.apache.flink.table.types.logical.RowType;
import org.apache.flink.table.types.logical.TimestampType;

/**
 * Reads a topic of bids with Flink up to its end, to rows that are counted and dropped.
 *
 * <p>Arguments: BROKER TOPIC csv|json rows|pojos PARALLELISM. "rows" are what Flink SQL makes, "pojos" objects by Jackson. One line
 * of JSON says how many rows there were, the seconds of the whole job, those from the first row to the last, and the
 * CPU seconds of the process, Java's own start included.
 */
public final class ReadTopic {
    private static final AtomicLong ROWS = new AtomicLong();
    private static final AtomicLong FIRST = new AtomicLong(Long.MAX_VALUE);
    private static final AtomicLong LAST = new AtomicLong(Long.MIN_VALUE);

    public static void main(String[] args) throws Exception {
        String broker = args[0];
        String topic = args[1];
        boolean isCsv = args[2].equals("csv");
        int parallelism = Integer.parseInt(args[4]);
        long start = System.nanoTime();
        if (args[3].equals("rows")) {
            run(broker, topic, rows(isCsv), parallelism);
        } else {
            run(broker, topic, new Pojos(isCsv), parallelism);
        }
        double seconds = (System.nanoTime() - start) / 1e9;
        var system = (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        System.out.printf(
                "{\"rows\": %d, \"seconds\": %.3f, \"first_to_last\": %.3f, \"cpu_seconds\": %.3f}%n",
                ROWS.get(), seconds, (LAST.get() - FIRST.get()) / 1e9, system.getProcessCpuTime() / 1e9);
        // Some of Flink's threads outlive the job.
        System.exit(0);
    }

    private static <T> void run(String broker, String topic, DeserializationSchema<T> schema, int parallelism)
            throws Exception {
        var environment = StreamExecutionEnvironment.createLocalEnvironment(parallelism, new Configuration());
        environment.getConfig().enableObjectReuse();
        KafkaSource<T> source = KafkaSource.<T>builder()
                .setBootstrapServers(broker)
                .setTopics(topic)
                .setStartingOffsets(OffsetsInitializer.earliest())
                .setBounded(OffsetsInitializer.latest())
                .setValueOnlyDeserializer(schema)
                .build();
        environment.fromSource(source, WatermarkStrategy.noWatermarks(), "topic").sinkTo(new Counting<T>());
        environment.execute();
    }

    private static DeserializationSchema<RowData> rows(boolean isCsv) {
        RowType type = RowType.of(
                new LogicalType[] {new IntType(), new DoubleType(), new TimestampType(3)},
                new String[] {"id", "bid_price", "order_time"});
        InternalTypeInfo<RowData> produced = InternalTypeInfo.of(type);
        return isCsv
                ? new CsvRowDataDeserializationSchema.Builder(type, produced).build()
                : new JsonParserRowDataDeserializationSchema(type, produced, false, false, TimestampFormat.SQL);
    }

    /** A bid as a Flink job in Java would have it. */
    @JsonPropertyOrder({"id", "bid_price", "order_time"})
    public static final class Bid {
        public int id;
        public double bid_price;

        @JsonFormat(pattern = "yyyy-MM-dd HH:mm:ss.SSS")
        public LocalDateTime order_time;
    }

    private static final class Pojos extends AbstractDeserializationSchema<Bid> {
        private final boolean isCsv;
        private transient ObjectReader reader;

        Pojos(boolean isCsv) {
            super(Bid.class);
            this.isCsv = isCsv;
        }

        @Override
        public void open(InitializationContext context) {
            if (isCsv) {
                CsvMapper mapper = CsvMapper.builder().addModule(new JavaTimeModule()).build();
                reader = mapper.readerFor(Bid.class).with(mapper.schemaFor(Bid.class));
            } else {
                reader = JsonMapper.builder().addModule(new JavaTimeModule()).build().readerFor(Bid.class);
            }
        }

        @Override
        public Bid deserialize(byte[] message) throws IOException {
            return reader.readValue(message);
        }
    }

    private static final class Counting<T> implements Sink<T> {
        @Override
        public SinkWriter<T> createWriter(WriterInitContext context) {
            return new SinkWriter<>() {
                private long rows;
                private long first = Long.MAX_VALUE;

                @Override
                public void write(T row, Context context) {
                    if (rows++ == 0) {
                        first = System.nanoTime();
                    }
                }

                // Called also at the end of input, when the last row was written just before.
                @Override
                public void flush(boolean endOfInput) {
                    if (rows > 0) {
                        ROWS.addAndGet(rows);
                        FIRST.accumulateAndGet(first, Math::min);
                        LAST.accumulateAndGet(System.nanoTime(), Math::max);
                        rows = 0;
                    }
                }

                @Override
                public void close() {}
            };
        }
    }
}
