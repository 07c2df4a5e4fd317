import java.nio.file.Path;
import java.util.List;
import org.opensearch.common.settings.Settings;
import org.opensearch.env.Environment;
import org.opensearch.node.Node;
import org.opensearch.transport.Netty4Plugin;

/** One node of OpenSearch with its HTTP interface, for tests: {@code OneNode FOLDER HTTP_PORT TRANSPORT_PORT}. */
public class OneNode extends Node {
    OneNode(Settings settings, Path folder) {
        super(
            new Environment(settings, folder.resolve("config")),
            List.of(Netty4Plugin.class),
            true);
    }

    public static void main(String[] words) throws Exception {
        Path folder = Path.of(words[0]);
        Settings settings = Settings.builder()
            .put("path.home", folder.toString())
            .put("cluster.name", "penstock")
            .put("node.name", "one")
            .put("discovery.type", "single-node")
            .put("network.host", "127.0.0.1")
            .put("http.port", words[1])
            .put("transport.port", words[2])
            .put("http.type", "netty4")
            .put("transport.type", "netty4")
            .put("node.store.allow_mmap", false)
            .put("cluster.routing.allocation.disk.threshold_enabled", false)
            .build();
        OneNode node = new OneNode(settings, folder);
        node.start();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> { try { node.close(); } catch (Exception e) { } }));
        Thread.currentThread().join();
    }
}
