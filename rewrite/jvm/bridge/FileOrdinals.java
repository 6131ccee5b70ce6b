package rewrite.jvm.bridge;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;

/**
 * The ordinals of an index's files by identity: path, size and mark.
 *
 * <p>The id is that of Python's `CachedEntries`: under one id, pages are only appended, and an
 * ordinal never changes its file. A file that is not here is unknown, and read. Pages stay in the
 * bytes that came, and a hash table of row numbers finds a file in them. A million files with paths
 * of 90 bytes take 150 MB, half of what a map of strings takes.
 */
public final class FileOrdinals {
  /** Has no files. */
  static final FileOrdinals NONE = new FileOrdinals("");

  private final String entriesId;
  private final List<FilePage> pages = new ArrayList<>();
  private int[] table = new int[1024]; // row + 1 in a place that its hash leads to, or 0
  private int size;
  private boolean isLoading;

  public FileOrdinals(String entriesId) {
    this.entriesId = entriesId;
  }

  /** Adds a page that continues these files. Whether there are more files than before, also if
      another thread has added them. */
  public boolean add(byte[] message) throws IOException {
    FilePage page = new FilePage(message);
    synchronized (this) {
      if (!entriesId.equals(page.entriesId())) return false;
      if (page.first() != size) return page.first() < size;
      if (page.rows() == 0) return false;
      pages.add(page);
      size += page.rows();
      if (table.length < 2 * size) {
        table = new int[Integer.highestOneBit(4 * size)];
        pages.forEach(this::enter);
      } else {
        enter(page);
      }
      return true;
    }
  }

  private void enter(FilePage page) {
    for (int row = 0; row < page.rows(); row++) {
      int place = page.hash(row) & (table.length - 1);
      // A file that was removed and indexed again is there twice: the later ordinal counts.
      while (table[place] != 0) {
        FilePage other = page(table[place] - 1);
        if (page.isSame(row, other, table[place] - 1 - other.first())) break;
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
      if (pages.get(middle).first() <= row) low = middle;
      else high = middle - 1;
    }
    return pages.get(low);
  }

  public synchronized int size() {
    return size;
  }

  /** Returns the ordinal of a file; -1 if it is not among the first `limit` files. */
  public int ordinal(String path, long size, String mark, int limit) {
    byte[] pathBytes = path.getBytes(StandardCharsets.UTF_8);
    byte[] markBytes = mark.getBytes(StandardCharsets.UTF_8);
    int hash = FilePage.hash(pathBytes, 0, pathBytes.length, size);
    synchronized (this) {
      for (int place = hash & (table.length - 1); table[place] != 0; ) {
        int row = table[place] - 1;
        FilePage page = page(row);
        if (page.matches(row - page.first(), pathBytes, size, markBytes)) {
          return row < limit ? page.ordinal(row - page.first()) : -1;
        }
        place = (place + 1) & (table.length - 1);
      }
      return -1;
    }
  }

  /** Whether the caller is to load the rest, because no other thread does. */
  synchronized boolean beginLoading() {
    if (isLoading) return false;
    isLoading = true;
    return true;
  }

  synchronized void endLoading() {
    isLoading = false;
  }
}
