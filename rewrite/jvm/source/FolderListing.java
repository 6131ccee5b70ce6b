package rewrite.jvm.source;

import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Queue;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;
import rewrite.jvm.bridge.Budget;
import rewrite.jvm.bridge.Failures;
import rewrite.jvm.bridge.IndexClient;

/**
 * Folders as they are now. Spark's listing may be old, and a file replaced at its path since: Spark
 * would read the new rows, so what an index knows of the old ones must not count.
 */
public final class FolderListing {
  /** Has no folder. */
  public static final FolderListing NONE = new FolderListing();

  private static final int THREADS = 16;

  private final Map<Path, Map<Path, FileStatus>> folders = new ConcurrentHashMap<>();

  private FolderListing() {}

  /** Lists folders, as far as the time that the query may spend on lookups allows. */
  public static FolderListing list(Configuration conf, Collection<Path> paths, IndexClient client) {
    FolderListing out = new FolderListing();
    Queue<Path> todo = new ConcurrentLinkedQueue<>(paths);
    List<Future<Void>> running = new ArrayList<>();
    for (int i = 0; i < Math.min(THREADS, paths.size()); i++) {
      running.add(client.threads().submit(() -> {
        for (Path folder = todo.poll(); folder != null; folder = todo.poll()) {
          Map<Path, FileStatus> files = new HashMap<>();
          for (FileStatus file : folder.getFileSystem(conf).listStatus(folder)) {
            files.put(file.getPath(), file);
          }
          out.folders.put(folder, files);
        }
        return null;
      }));
    }
    Budget budget = client.budget();
    budget.begin();
    try {
      for (Future<Void> each : running) {
        each.get(budget.remaining(), TimeUnit.NANOSECONDS);
      }
    } catch (Exception failure) {
      todo.clear();
      Failures.passOn(failure);
    } finally {
      budget.end();
    }
    return out;
  }

  /** Whether a file is as it was when Spark listed it. */
  public boolean has(FileStatus listed) {
    FileStatus file =
        folders.getOrDefault(listed.getPath().getParent(), Map.of()).get(listed.getPath());
    return file != null
        && file.getLen() == listed.getLen()
        && file.getModificationTime() == listed.getModificationTime();
  }
}
