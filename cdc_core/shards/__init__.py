"""Several sources with the same tables, read as one: what every rangefeed can do, because it is built around them."""
