package rewrite.jvm.predicate;

import static rewrite.jvm.bridge.MessageWriter.node;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.IntStream;
import org.apache.spark.sql.catalyst.expressions.Literal;
import rewrite.jvm.bridge.MessageWriter;
import rewrite.jvm.bridge.Protocol;

/** Writes conditions as JSON objects; their values go into the buffers of the message. */
record ConditionWriter(MessageWriter writer) {
  Map<String, Object> write(Condition condition) {
    if (condition instanceof Condition.AllOf all) {
      return node(Protocol.AND, Protocol.OPERANDS, writeAll(all.operands()));
    }
    if (condition instanceof Condition.AnyOf any) {
      return node(Protocol.OR, Protocol.OPERANDS, writeAll(any.operands()));
    }
    if (condition instanceof Condition.Negation not) {
      return node(Protocol.NOT, Protocol.OPERAND, write(not.operand()));
    }
    if (condition instanceof Condition.Weak weak) {
      return node(
          Protocol.WEAK, Protocol.HOLDS, write(weak.holds()), Protocol.FAILS, write(weak.fails()));
    }
    if (condition instanceof Condition.Unknown unknown) {
      return node(Protocol.UNKNOWN, Protocol.WHY, unknown.reason());
    }
    if (condition instanceof Condition.NullTest test) {
      return node(Protocol.NULL, Protocol.COLUMN, write(test.column()));
    }
    if (condition instanceof Condition.Comparison comparison) {
      return node(
          Protocol.COMPARE, Protocol.COLUMN, write(comparison.column()),
          Protocol.COMPARE, comparison.op(), Protocol.VALUES, write(comparison.literal()),
          Protocol.OF, comparison.dimension());
    }
    if (condition instanceof Condition.ValueList list) {
      return node(
          Protocol.IN, Protocol.COLUMN, write(list.column()), Protocol.NULLS, list.hasNull(),
          Protocol.VALUES, writer.values(list.type(), list.values()),
          Protocol.OF, list.dimension());
    }
    if (condition instanceof Condition.TextMatch match) {
      return node(
          match.op(), Protocol.COLUMN, write(match.column()), Protocol.VALUES, write(match.text()));
    }
    if (condition instanceof Condition.Elements elements) {
      return node(
          Protocol.ELEMENTS, Protocol.COLUMN, write(elements.column()),
          Protocol.VALUES, writer.values(elements.type(), elements.values()));
    }
    Condition.TupleList tuples = (Condition.TupleList) condition;
    return node(
        Protocol.TUPLES, Protocol.COLUMNS, tuples.columns().stream().map(this::write).toList(),
        Protocol.VALUES,
        IntStream.range(0, tuples.types().size())
            .mapToObj(i -> writer.values(tuples.types().get(i), tuples.values().get(i)))
            .toList(),
        Protocol.OF, tuples.dimension());
  }

  private List<Map<String, Object>> writeAll(List<Condition> conditions) {
    List<Map<String, Object>> out = new ArrayList<>(); // no stream: this recurses deeply
    for (Condition condition : conditions) {
      out.add(write(condition));
    }
    return out;
  }

  private Map<String, Object> write(ColumnRef column) {
    Map<String, Object> out = new LinkedHashMap<>();
    out.put(Protocol.IDENTITY, column.identity());
    out.put(Protocol.NAME, column.name());
    out.put(Protocol.TYPE, column.type());
    return out;
  }

  private Map<String, Object> write(Literal literal) {
    return writer.values(literal.dataType(), List.of(literal.value()));
  }
}
