import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.net.URI;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import java.util.Set;
import java.util.regex.Pattern;
import org.gaul.s3proxy.AuthenticationType;
import org.gaul.s3proxy.PutOptions2;
import org.gaul.s3proxy.S3Proxy;
import org.jclouds.ContextBuilder;
import org.jclouds.blobstore.BlobStore;
import org.jclouds.blobstore.BlobStoreContext;
import org.jclouds.blobstore.domain.Blob;
import org.jclouds.blobstore.domain.BlobMetadata;
import org.jclouds.blobstore.domain.PageSet;
import org.jclouds.blobstore.domain.StorageMetadata;
import org.jclouds.blobstore.domain.internal.PageSetImpl;
import org.jclouds.blobstore.options.ListContainerOptions;

/**
 * An object store over a folder, with a delay before each request: PORT FOLDER KEY SECRET.
 *
 * <p>A folder below FOLDER is a bucket. A line on standard input sets the delay in milliseconds and
 * is answered by it; at its end the store ends, so that it never outlives who started it.
 */
public class SlowStore {
  private static final Set<String> REQUESTS =
      Set.of(
          "blobMetadata", "getBlob", "list", "putBlob", "copyBlob", "removeBlob", "removeBlobs",
          "initiateMultipartUpload", "uploadMultipartPart", "completeMultipartUpload");

  /** What a PUT that runs, or failed, leaves in the folder. */
  private static final Pattern TEMPORARY = Pattern.compile(".*-[0-9a-f]{8}(-[0-9a-f]{4,12}){4}");

  private static final Object PUT = new Object();

  private static volatile long delay;

  public static void main(String[] args) throws Exception {
    Properties folder = new Properties();
    folder.setProperty("jclouds.filesystem.basedir", args[1]);
    BlobStore store =
        ContextBuilder.newBuilder("filesystem-nio2")
            .credentials("-", "-")
            .overrides(folder)
            .build(BlobStoreContext.class)
            .getBlobStore();
    S3Proxy.builder()
        .endpoint(URI.create("http://127.0.0.1:" + args[0]))
        .blobStore(slow(store))
        .awsAuthentication(AuthenticationType.AWS_V2_OR_V4, args[2], args[3])
        .ignoreUnknownHeaders(true)
        .jettyMaxThreads(200)
        .build()
        .start();
    BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
    System.out.println("ready");
    for (String line = in.readLine(); line != null; line = in.readLine()) {
      delay = Long.parseLong(line.trim());
      System.out.println(delay);
    }
    System.exit(0);
  }

  private static BlobStore slow(BlobStore store) {
    return (BlobStore)
        Proxy.newProxyInstance(
            SlowStore.class.getClassLoader(),
            new Class<?>[] {BlobStore.class},
            (self, method, given) -> answer(store, method, given));
  }

  private static Object answer(BlobStore store, Method method, Object[] given) throws Throwable {
    if (REQUESTS.contains(method.getName())) Thread.sleep(delay);
    if (method.getName().equals("blobExists")) {
      return file(given, store.blobMetadata((String) given[0], (String) given[1])) != null;
    }
    if (method.getName().equals("putBlob")) return put(store, method, given);
    for (int tries = 1; ; tries++) {
      try {
        Object out = method.invoke(store, given);
        if (out instanceof PageSet && given.length == 2) {
          return objects((PageSet<?>) out, (ListContainerOptions) given[1]);
        }
        if (out instanceof Blob) {
          return file(given, ((Blob) out).getMetadata()) == null ? null : out;
        }
        return out instanceof BlobMetadata ? file(given, (BlobMetadata) out) : out;
      } catch (InvocationTargetException failure) {
        // A listing fails when a file that is being written goes away under it.
        if (!method.getName().equals("list") || tries == 20) throw failure.getCause();
      }
    }
  }

  /** S3Proxy checks a condition before it writes: several of those who race for a key would win. */
  private static Object put(BlobStore store, Method method, Object[] given) throws Throwable {
    boolean onlyNew =
        given.length == 3
            && given[2] instanceof PutOptions2
            && "*".equals(((PutOptions2) given[2]).getIfNoneMatch());
    try {
      synchronized (PUT) {
        String name = ((Blob) given[1]).getMetadata().getName();
        if (onlyNew && store.blobMetadata((String) given[0], name) != null) {
          throw new IllegalStateException("PreconditionFailed");  // for S3Proxy: 412
        }
        return method.invoke(store, given);
      }
    } catch (InvocationTargetException failure) {
      throw failure.getCause();
    }
  }

  /** Null for a folder that was asked for by the name of a file: a real store has none. */
  private static BlobMetadata file(Object[] given, BlobMetadata found) {
    boolean folder =
        found != null
            && !((String) given[1]).endsWith("/")
            && "application/x-directory".equals(found.getContentMetadata().getContentType());
    return folder ? null : found;
  }

  /** A listing as a real store gives it: complete objects, and folders only where asked for. */
  private static PageSet<StorageMetadata> objects(PageSet<?> page, ListContainerOptions asked) {
    List<StorageMetadata> kept = new ArrayList<>();
    for (Object each : page) {
      StorageMetadata found = (StorageMetadata) each;
      boolean folder = asked.isRecursive() && found.getName().endsWith("/");
      if (!folder && !TEMPORARY.matcher(found.getName()).matches()) kept.add(found);
    }
    return new PageSetImpl<>(kept, page.getNextMarker());
  }
}
