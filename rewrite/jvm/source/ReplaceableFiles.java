package rewrite.jvm.source;

import java.util.Collection;
import org.apache.hadoop.fs.Path;

/** A scan of a table whose files may be replaced at their paths. */
public interface ReplaceableFiles {
  /** Lists these folders as they are now. */
  FolderListing now(Collection<Path> folders);
}
