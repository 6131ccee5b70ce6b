import jakarta.servlet.http.HttpServlet;
import java.io.PrintStream;
import java.util.HashMap;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.iceberg.CatalogUtil;
import org.apache.iceberg.catalog.Catalog;
import org.apache.iceberg.jdbc.JdbcCatalog;
import org.apache.iceberg.rest.RESTCatalogAdapter;
import org.apache.iceberg.rest.RESTCatalogServlet;
import org.eclipse.jetty.ee10.servlet.ServletContextHandler;
import org.eclipse.jetty.ee10.servlet.ServletHolder;
import org.eclipse.jetty.server.Server;
import org.eclipse.jetty.server.ServerConnector;

/**
 * Iceberg's own REST catalog over SQLite, on loopback: DATABASE WAREHOUSE.
 *
 * <p>What its test fixture RESTCatalogServer starts, which listens on every address. Prints its
 * port; ends with its standard input, so that it never outlives who started it.
 */
public class RestCatalog {
  public static void main(String[] args) throws Exception {
    PrintStream out = System.out;
    System.setOut(System.err); // the server logs there, and nobody reads the pipe any more
    Map<String, String> properties = new HashMap<>();
    properties.put("catalog-impl", JdbcCatalog.class.getName());
    properties.put("uri", "jdbc:sqlite:" + args[0]);
    properties.put("jdbc.schema-version", "V1");
    properties.put("warehouse", args[1]);
    Catalog catalog = CatalogUtil.buildIcebergCatalog("behind", properties, new Configuration());
    HttpServlet servlet = new RESTCatalogServlet(new RESTCatalogAdapter(catalog));
    ServletContextHandler handler = new ServletContextHandler();
    handler.addServlet(new ServletHolder(servlet), "/*");
    Server server = new Server();
    ServerConnector connector = new ServerConnector(server);
    connector.setHost("127.0.0.1");
    server.addConnector(connector);
    server.setHandler(handler);
    server.start();
    out.println(connector.getLocalPort());
    while (System.in.read() >= 0) {}
    System.exit(0);
  }
}
