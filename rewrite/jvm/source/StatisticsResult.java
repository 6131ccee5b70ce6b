package rewrite.jvm.source;

import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import rewrite.jvm.bridge.Protocol;

/** The files of a scan that the table itself prunes, together and by predicate. */
public final class StatisticsResult {
  private final List<Operand> operands = new ArrayList<>();
  private final Set<String> pruned = new HashSet<>();

  private record Operand(String label, String dimension, Set<String> pruned) {}

  /** Adds a predicate, the dimension whose keys it has ("": none), and the files it prunes. */
  public void add(String label, String dimension, Set<String> locations) {
    operands.add(new Operand(label, dimension, locations));
    pruned.addAll(locations);
  }

  public int operands() {
    return operands.size();
  }

  List<Map<String, String>> describeOperands() {
    return operands.stream()
        .map(each -> Map.of(Protocol.LABEL, each.label, Protocol.OF, each.dimension))
        .toList();
  }

  /** Whether predicate `i` is that of a dimension's keys. */
  public boolean isOf(int i, String dimension) {
    return operands.get(i).dimension.equals(dimension);
  }

  public boolean prunesAny() {
    return !pruned.isEmpty();
  }

  /** Whether a file has no matching row. */
  public boolean prunes(String location) {
    return pruned.contains(location);
  }

  /** Whether predicate `i` alone prunes a file. */
  public boolean prunes(int i, String location) {
    return operands.get(i).pruned.contains(location);
  }

  /** Two are equal where they prune equally: exchanges of such scans may be shared. */
  @Override public boolean equals(Object other) {
    return other instanceof StatisticsResult that && pruned.equals(that.pruned);
  }

  @Override public int hashCode() {
    return pruned.hashCode();
  }
}
