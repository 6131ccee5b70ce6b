package rewrite.jvm.predicate;

import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.internal.SQLConf;
import rewrite.jvm.bridge.Protocol;

/** What a table's index may have a column for: columns of the table, and expressions over them. */
public final class IndexedColumns {
  /** Expressions whose texts are made for one question; the others are as ones without an index. */
  private static final int MOST = 1000;

  private final ColumnResolver columns;
  private final Set expressions;
  private final Map texts = new HashMap(); // by expression: of thousands of legs most have a few
  private Boolean isAsIndexed; // not looked for before there is such an expression

  /** `expressions` are the identities of those that the index has (ExpressionText); none is asked
      in a session whose settings change what they mean. */
  public IndexedColumns(ColumnResolver columns, Set expressions) {
    this.columns = columns;
    this.expressions = expressions;
  }

  /** The identity of what an expression is; null: neither a column nor an expression there. */
  public String identity(Expression e) {
    Expression bare = Casts.bare(e);
    List path = Conditions.path(bare);
    return path == null ? computed(bare) : columns.identity(path);
  }

  /** Its identity, name and type; null as above. */
  Map describe(Expression e) {
    Expression bare = Casts.bare(e);
    List path = Conditions.path(bare);
    if (path != null) return columns.describe(path, bare.dataType());
    String identity = computed(bare);
    if (identity == null) return null;
    Map out = new LinkedHashMap();
    out.put(Protocol.IDENTITY, identity);
    out.put(Protocol.NAME, Conditions.shape(bare));
    out.put(Protocol.TYPE, bare.dataType().catalogString());
    return out;
  }

  private boolean isAsIndexed() {
    if (isAsIndexed == null) {
      isAsIndexed = Boolean.valueOf(ExpressionText.setting(SQLConf.get()) == null);
    }
    return isAsIndexed.booleanValue();
  }

  private String computed(Expression bare) {
    if (expressions.isEmpty() || bare instanceof Literal) return null;
    if (!texts.containsKey(bare)) {
      if (texts.size() == MOST) return null;
      texts.put(bare, ExpressionText.of(bare, columns).text());
    }
    String text = (String) texts.get(bare);
    return text != null && expressions.contains(text) && isAsIndexed() ? text : null;
  }
}
