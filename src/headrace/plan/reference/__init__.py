"""Reference pages: what the catalog knows, by topic, in the terminal and on one page of HTML."""
