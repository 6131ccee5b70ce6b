package rewrite.jvm.source;

import java.util.Collection;

/** A scan of a table whose files may be replaced at their paths. */
public interface ReplaceableFiles {
  /** These folders as they are now. */
  FolderListing now(Collection folders);
}
