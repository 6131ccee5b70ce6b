package rewrite.jvm.source;

import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Queue;
import java.util.concurrent.Callable;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.TimeUnit;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;
import rewrite.jvm.bridge.Budget;
import rewrite.jvm.bridge.Failures;
import rewrite.jvm.bridge.IndexClient;

/**
 * Folders as they are now. What Spark listed may be old, and a file replaced at its path since:
 * Spark would read the new rows, so what is known of the old ones must not count.
 */
public final class FolderListing {
  /** Knows nothing of any. */
  public static final FolderListing NONE = new FolderListing();

  private static final int AT_ONCE = 16;

  private final Map listings = new ConcurrentHashMap();

  private FolderListing() {}

  /** Lists folders, in the time that the query may spend on asking; of those that are not done,
      nothing is known. */
  public static FolderListing list(final Configuration conf, Collection paths, IndexClient client) {
    final FolderListing out = new FolderListing();
    final Queue todo = new ConcurrentLinkedQueue(paths);
    List running = new ArrayList();
    for (int i = 0; i < Math.min(AT_ONCE, paths.size()); i++) {
      running.add(client.threads().submit(new Callable() {
        public Object call() throws Exception {
          for (Object next = todo.poll(); next != null; next = todo.poll()) {
            Path folder = (Path) next;
            out.listings.put(folder, listing(folder.getFileSystem(conf).listStatus(folder)));
          }
          return null;
        }
      }));
    }
    Budget budget = client.budget();
    budget.begin();
    try {
      for (Iterator each = running.iterator(); each.hasNext(); ) {
        java.util.concurrent.Future one = (java.util.concurrent.Future) each.next();
        one.get(budget.left(), TimeUnit.NANOSECONDS);
      }
    } catch (Exception failure) {
      todo.clear();
      Failures.passOn(failure);
    } finally {
      budget.end();
    }
    return out;
  }

  private static Map listing(FileStatus[] files) {
    Map out = new HashMap();
    for (int i = 0; i < files.length; i++) {
      out.put(files[i].getPath(), files[i]);
    }
    return out;
  }

  /** Whether a file still is what it was when it was listed. */
  public boolean has(FileStatus listed) {
    Map files = (Map) listings.get(listed.getPath().getParent());
    FileStatus file = files == null ? null : (FileStatus) files.get(listed.getPath());
    return file != null
        && file.getLen() == listed.getLen()
        && file.getModificationTime() == listed.getModificationTime();
  }
}
