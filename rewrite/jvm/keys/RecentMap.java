package rewrite.jvm.keys;

import java.util.LinkedHashMap;
import java.util.Map;

/** A map that forgets the entry that was not used for longest. */
final class RecentMap<K, V> extends LinkedHashMap<K, V> {
  private static final long serialVersionUID = 1;
  private static final int MAX_ENTRIES = 10000;

  RecentMap() {
    super(16, 0.75f, true);
  }

  @Override protected boolean removeEldestEntry(Map.Entry<K, V> eldest) {
    return size() > MAX_ENTRIES;
  }
}
