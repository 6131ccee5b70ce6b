package rewrite.jvm.predicate;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.types.DataType;
import rewrite.jvm.bridge.MessageWriter;
import rewrite.jvm.bridge.Protocol;

/** The nodes of conditions in a message, whose values a writer takes. */
final class ConditionNodes {
  private final MessageWriter writer;

  ConditionNodes(MessageWriter writer) {
    this.writer = writer;
  }

  private static Map node(String op, String key, Object value) {
    Map out = new LinkedHashMap();
    out.put(Protocol.OP, op);
    out.put(key, value);
    return out;
  }

  Map join(String op, List legs) {
    return node(op, Protocol.LEGS, legs);
  }

  Map not(Map leg) {
    return node(Protocol.NOT, Protocol.LEG, leg);
  }

  /** A condition that implies one thing where it is true, and another where it is false. */
  Map weak(Map holds, Map fails) {
    Map out = node(Protocol.WEAK, Protocol.HOLDS, holds);
    out.put(Protocol.FAILS, fails);
    return out;
  }

  Map nothing() {
    return join(Protocol.OR, new ArrayList());
  }

  Map unknown(String why) {
    return node(Protocol.UNKNOWN, Protocol.WHY, why);
  }

  Map leaf(String op, Map column) {
    return node(op, Protocol.COLUMN, column);
  }

  Map or(Map one, Map other) {
    List legs = new ArrayList();
    legs.add(one);
    legs.add(other);
    return join(Protocol.OR, legs);
  }

  Map compare(String op, Map column, Literal literal) {
    Map out = leaf(Protocol.COMPARE, column);
    out.put(Protocol.COMPARE, op);
    out.put(Protocol.VALUES, one(literal));
    return out;
  }

  private Map one(Literal literal) {
    List values = new ArrayList();
    values.add(literal.value());
    return writer.values(literal.dataType(), values);
  }

  /** "The column has one of these values"; `nulls`: also null was asked for. */
  Map in(Map column, DataType type, List values, boolean nulls) {
    Map out = leaf(Protocol.IN, column);
    out.put(Protocol.NULLS, Boolean.valueOf(nulls));
    out.put(Protocol.VALUES, writer.values(type, values));
    return out;
  }

  /** "These columns are one of these tuples": of each column its values, row by row. */
  Map tuples(List columns, List types, List values, String dimension) {
    List written = new ArrayList();
    for (int i = 0; i < columns.size(); i++) {
      written.add(writer.values((DataType) types.get(i), (List) values.get(i)));
    }
    Map out = node(Protocol.TUPLES, Protocol.COLUMNS, columns);
    out.put(Protocol.VALUES, written);
    out.put(Protocol.OF, dimension);
    return out;
  }

  /** "The column begins, ends or has in it such a text". */
  Map text(String op, Map column, Literal text) {
    Map out = leaf(op, column);
    out.put(Protocol.VALUES, one(text));
    return out;
  }

  /** "The column is within one of these ranges": pairs of values, where null is no end, of a
      dimension or of the query itself (""). Those of one value are a list. */
  Map within(Map column, DataType type, List ranges, String dimension) {
    List legs = new ArrayList();
    List values = new ArrayList();
    for (int i = 0; i < ranges.size(); i++) {
      Object[] range = (Object[]) ranges.get(i);
      if (KeyRanges.isSingle(range[0], range[1])) {
        values.add(range[0]);
        continue;
      }
      List ends = new ArrayList();
      if (range[0] != null) ends.add(compare(">=", column, new Literal(range[0], type)));
      if (range[1] != null) ends.add(compare("<=", column, new Literal(range[1], type)));
      for (int j = 0; j < ends.size(); j++) {
        ((Map) ends.get(j)).put(Protocol.OF, dimension);
      }
      legs.add(ends.isEmpty() ? not(leaf(Protocol.NULL, column)) : join(Protocol.AND, ends));
    }
    if (!values.isEmpty()) {
      Map listed = in(column, type, values, false);
      listed.put(Protocol.OF, dimension);
      legs.add(listed);
    }
    return legs.size() == 1 ? (Map) legs.get(0) : join(Protocol.OR, legs);
  }
}
