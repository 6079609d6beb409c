"""Which components are installed: the plugin host, and loading of plugins by their entry points."""
