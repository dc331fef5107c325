"""An incident afterwards: facts first (pure), then charts, then Markdown and HTML. Nothing here asks, decides or stores."""
