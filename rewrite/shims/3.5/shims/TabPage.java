package rewrite.jvm.shims;

import java.util.function.Supplier;
import javax.servlet.http.HttpServletRequest;
import org.apache.spark.ui.SparkUITab;
import org.apache.spark.ui.UIUtils;
import org.apache.spark.ui.WebUIPage;
import scala.Option;
import scala.collection.Seq;
import scala.collection.immutable.List$;
import scala.xml.Node;
import scala.xml.Unparsed;

/**
 * The page of a tab in Spark's UI, with Spark's header and footer around HTML that is complete.
 *
 * <p>Until 3.5 a request is that of `javax.servlet`, and a Seq that of scala.collection; see 4.0.
 */
public final class TabPage extends WebUIPage {
  private final SparkUITab tab;
  private final Supplier<String> html;

  public TabPage(SparkUITab tab, Supplier<String> html) {
    super("");
    this.tab = tab;
    this.html = html;
  }

  @Override public Seq<Node> render(HttpServletRequest request) {
    Seq<Node> content = List$.MODULE$.<Node>empty().$colon$colon(new Unparsed(html.get()));
    return UIUtils.headerSparkPage(
        request, tab.name(), () -> content, tab, Option.empty(), false, false);
  }
}
