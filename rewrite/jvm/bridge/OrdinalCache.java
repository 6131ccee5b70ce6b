package rewrite.jvm.bridge;

import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.Map;

/** The file ordinals of the indexes that were looked up last. */
final class OrdinalCache {
  private static final int INDEXES = 64;
  private static final int FILES = 4_000_000;
  private static final int COPIES = 2; // of an index: sessions may have other settings

  private final Map<Key, FileOrdinals> cache = new LinkedHashMap<>(16, 0.75f, true);

  private record Key(String index, String entriesId) {}

  /** Returns the ordinals of some entries, and removes the oldest others if there are too many. */
  synchronized FileOrdinals get(String index, String entriesId) {
    FileOrdinals found =
        cache.computeIfAbsent(new Key(index, entriesId), key -> new FileOrdinals(entriesId));
    long copies = cache.keySet().stream().filter(key -> key.index.equals(index)).count();
    int files = cache.values().stream().mapToInt(FileOrdinals::size).sum();
    Iterator<Map.Entry<Key, FileOrdinals>> oldest = cache.entrySet().iterator();
    for (int others = cache.size() - 1; others > 0; others--) {
      Map.Entry<Key, FileOrdinals> entry = oldest.next();
      boolean isOfIndex = entry.getKey().index.equals(index);
      boolean isTooMany = isOfIndex && copies > COPIES || cache.size() > INDEXES || files > FILES;
      if (!isTooMany) continue;
      if (isOfIndex) copies--;
      files -= entry.getValue().size();
      oldest.remove();
    }
    return found;
  }
}
