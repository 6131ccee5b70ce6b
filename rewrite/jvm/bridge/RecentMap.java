package rewrite.jvm.bridge;

import java.util.LinkedHashMap;
import java.util.Map;

/** A map that forgets the entries that were not used for the longest time. */
public final class RecentMap<K, V> extends LinkedHashMap<K, V> {
  private static final long serialVersionUID = 1;

  private final int capacity;

  public RecentMap(int capacity) {
    super(16, 0.75f, true);
    this.capacity = capacity;
  }

  @Override protected boolean removeEldestEntry(Map.Entry<K, V> eldest) {
    return size() > capacity;
  }
}
