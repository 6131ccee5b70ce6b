import jakarta.servlet.http.HttpServlet;
import java.io.File;
import java.io.PrintStream;
import java.net.URI;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.function.Consumer;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.iceberg.CatalogUtil;
import org.apache.iceberg.catalog.Catalog;
import org.apache.iceberg.jdbc.JdbcCatalog;
import org.apache.iceberg.rest.HTTPRequest;
import org.apache.iceberg.rest.RESTCatalogAdapter;
import org.apache.iceberg.rest.RESTCatalogServlet;
import org.apache.iceberg.rest.RESTResponse;
import org.apache.iceberg.rest.credentials.Credential;
import org.apache.iceberg.rest.credentials.ImmutableCredential;
import org.apache.iceberg.rest.responses.ErrorResponse;
import org.apache.iceberg.rest.responses.LoadTableResponse;
import org.eclipse.jetty.ee10.servlet.ServletContextHandler;
import org.eclipse.jetty.ee10.servlet.ServletHolder;
import org.eclipse.jetty.server.Server;
import org.eclipse.jetty.server.ServerConnector;

/**
 * Iceberg's own REST catalog over SQLite, on loopback: DATABASE WAREHOUSE [FOLDER NAME=VALUE ...].
 *
 * <p>What its test fixture RESTCatalogServer starts, which listens on every address. Prints its
 * port; ends with its standard input, so that it never outlives who started it.
 *
 * <p>FOLDER is where a bucket has its objects, of whose tables it vends credentials: the properties
 * that follow, and the key and secret that the caller's token is, as `key:secret`.
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
    ClassLoader mine = RestCatalog.class.getClassLoader(); // of a source, not of the class path
    Thread.currentThread().setContextClassLoader(mine);
    Configuration configuration = new Configuration();
    configuration.setClass("fs.s3.impl", Bucket.class, FileSystem.class);
    Catalog catalog = CatalogUtil.buildIcebergCatalog("behind", properties, configuration);
    RESTCatalogAdapter adapter = new RESTCatalogAdapter(catalog);
    if (args.length > 2) {
      Bucket.uri = URI.create(args[1]).resolve("/");
      Bucket.folder = args[2];
      adapter = new Vending(catalog, Arrays.asList(args).subList(3, args.length));
    }
    HttpServlet servlet = new RESTCatalogServlet(adapter);
    ServletContextHandler handler = new ServletContextHandler();
    handler.setClassLoader(mine);
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

  /** A bucket whose objects are the files of a folder. */
  public static class Bucket extends RawLocalFileSystem {
    private static URI uri;
    private static String folder;

    @Override
    public URI getUri() {
      return uri;
    }

    @Override
    public File pathToFile(Path path) {
      return new File(folder + path.toUri().getPath());
    }
  }

  /** Gives with each table credentials for its files: those of whoever asks. */
  static class Vending extends RESTCatalogAdapter {
    private final List<String> properties;

    Vending(Catalog catalog, List<String> properties) {
      super(catalog);
      this.properties = properties;
    }

    @Override
    protected <T extends RESTResponse> T execute(
        HTTPRequest request,
        Class<T> type,
        Consumer<ErrorResponse> errors,
        Consumer<Map<String, String>> headers) {
      T answer = super.execute(request, type, errors, headers);
      if (!(answer instanceof LoadTableResponse)) return answer;
      LoadTableResponse loaded = (LoadTableResponse) answer;
      ImmutableCredential.Builder vended = ImmutableCredential.builder().prefix("s3://");
      for (String each : properties) vended.putConfig(each.split("=", 2)[0], each.split("=", 2)[1]);
      String token = request.headers().firstEntry("authorization").get().value();
      String[] key = token.replaceFirst("Bearer ", "").split(":");
      vended.putConfig("s3.access-key-id", key[0]).putConfig("s3.secret-access-key", key[1]);
      Credential credential = vended.build();
      return type.cast(
          LoadTableResponse.builder()
              .withTableMetadata(loaded.tableMetadata())
              .addAllConfig(loaded.config())
              .addAllConfig(credential.config())
              .addCredential(credential)
              .build());
    }
  }
}
