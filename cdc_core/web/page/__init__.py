"""The page on which people watch and steer changefeeds: server-rendered, kept up to date by server-sent events."""
