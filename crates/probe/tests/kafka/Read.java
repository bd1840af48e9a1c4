import java.time.Duration;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Writes every committed message of some topics to standard output: topic, partition, offset, key and value in hexadecimal.
 */
public class Read {
    public static void main(String[] arguments) {
        Map<String, Object> options = Map.of(
                "bootstrap.servers", arguments[0], "auto.offset.reset", "earliest", "isolation.level", "read_committed");
        var octets = new ByteArrayDeserializer();
        try (var consumer = new KafkaConsumer<byte[], byte[]>(options, octets, octets)) {
            List<TopicPartition> partitions = new ArrayList<>();
            for (int i = 1; i < arguments.length; i++) {
                for (var partition : consumer.partitionsFor(arguments[i])) {
                    partitions.add(new TopicPartition(partition.topic(), partition.partition()));
                }
            }
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            var ends = consumer.endOffsets(partitions);
            while (partitions.stream().anyMatch(p -> consumer.position(p) < ends.get(p))) {
                var text = new StringBuilder();
                for (ConsumerRecord<byte[], byte[]> message : consumer.poll(Duration.ofSeconds(1))) {
                    text.append(message.topic()).append('\t').append(message.partition()).append('\t');
                    text.append(message.offset()).append('\t');
                    text.append(HexFormat.of().formatHex(message.key())).append('\t');
                    text.append(HexFormat.of().formatHex(message.value())).append('\n');
                }
                System.out.print(text);
            }
        }
    }
}
