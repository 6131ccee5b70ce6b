package rewrite.jvm.bridge;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;

/**
 * The ordinals of an index's files by identity: path, size and mark.
 *
 * <p>They are of one lineage (Python's `CachedEntries`): files come page by page, each is appended, and
 * none ever means another file. A file that is not here is unknown, and read. The pages stay as the
 * bytes that came; a table of row numbers finds a file in them: of a million files with paths of 90
 * bytes 150 MB, where a map of strings has 300.
 */
public final class FileOrdinals {
  /** Knows no file. */
  public static final FileOrdinals NONE = new FileOrdinals("");

  private final String lineage;
  private final List pages = new ArrayList();
  private int[] table = new int[1024]; // row + 1 in a place that its hash leads to, or 0
  private int size;
  private boolean loading;

  /** Of a lineage, without files. */
  public FileOrdinals(String lineage) {
    this.lineage = lineage;
  }

  /** Adds a page, if it follows on from what is here; whether it told of more files, or somebody
      else had added them. */
  public boolean add(byte[] message) throws IOException {
    FilePage page = new FilePage(message);
    synchronized (this) {
      if (!lineage.equals(page.lineage())) return false;
      if (page.first() != size) return page.first() < size;
      if (page.rows() == 0) return false;
      pages.add(page);
      size += page.rows();
      if (table.length < 2 * size) {
        table = new int[Integer.highestOneBit(4 * size)];
        for (int i = 0; i < pages.size(); i++) enter((FilePage) pages.get(i));
      } else {
        enter(page);
      }
      return true;
    }
  }

  private void enter(FilePage page) {
    for (int row = 0; row < page.rows(); row++) {
      int place = page.hash(row) & (table.length - 1);
      // A file that was forgotten and indexed again is there twice: the later ordinal counts.
      while (table[place] != 0) {
        FilePage there = page(table[place] - 1);
        if (page.isSame(row, there, table[place] - 1 - there.first())) break;
        place = (place + 1) & (table.length - 1);
      }
      table[place] = page.first() + row + 1;
    }
  }

  private FilePage page(int row) {
    int low = 0;
    int high = pages.size() - 1;
    while (low < high) {
      int middle = (low + high + 1) >>> 1;
      if (((FilePage) pages.get(middle)).first() <= row) low = middle;
      else high = middle - 1;
    }
    return (FilePage) pages.get(low);
  }

  /** How many files there are. */
  public synchronized int size() {
    return size;
  }

  /** The ordinal of a file that is among the first so many, or -1. */
  public int ordinal(String path, long size, String mark, int known) {
    byte[] named = path.getBytes(StandardCharsets.UTF_8);
    byte[] marked = mark.getBytes(StandardCharsets.UTF_8);
    int hash = FilePage.hash(named, 0, named.length, size);
    synchronized (this) {
      for (int place = hash & (table.length - 1); table[place] != 0; ) {
        int row = table[place] - 1;
        FilePage page = page(row);
        if (page.is(row - page.first(), named, size, marked)) {
          return row < known ? page.ordinal(row - page.first()) : -1;
        }
        place = (place + 1) & (table.length - 1);
      }
      return -1;
    }
  }

  /** Whether who asks is to load the rest, because nobody does. */
  synchronized boolean beginLoading() {
    if (loading) return false;
    loading = true;
    return true;
  }

  /** Nobody loads any more. */
  synchronized void endLoading() {
    loading = false;
  }
}
