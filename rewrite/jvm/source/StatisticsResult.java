package rewrite.jvm.source;

import java.util.ArrayList;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import rewrite.jvm.bridge.Protocol;

/** The files of a scan that the table itself prunes, altogether and leg by leg. */
public final class StatisticsResult {
  private final List described = new ArrayList();
  private final List legs = new ArrayList();
  private final Set pruned = new HashSet();

  /** Adds a leg: what asked it, the dimension whose keys it is of ("": none), and the locations. */
  void add(String label, String dimension, Set locations) {
    Map leg = new LinkedHashMap();
    leg.put(Protocol.LABEL, label);
    leg.put(Protocol.OF, dimension);
    described.add(leg);
    legs.add(locations);
    pruned.addAll(locations);
  }

  /** How many legs there are. */
  public int legs() {
    return legs.size();
  }

  /** The legs for explain. */
  List described() {
    return described;
  }

  /** Whether leg `i` is that of a dimension's keys. */
  public boolean isOf(int i, String dimension) {
    return dimension.equals(((Map) described.get(i)).get(Protocol.OF));
  }

  /** Whether a file is proven to hold no matching row. */
  public boolean prunes(String location) {
    return pruned.contains(location);
  }

  /** Whether leg `i` alone prunes a file. */
  public boolean prunes(int i, String location) {
    return ((Set) legs.get(i)).contains(location);
  }

  /** Two are equal where they prune equally: exchanges of such scans may be shared. */
  public boolean equals(Object other) {
    return other instanceof StatisticsResult
        && pruned.equals(((StatisticsResult) other).pruned);
  }

  public int hashCode() {
    return pruned.hashCode();
  }
}
