"""The page that imports tables of one's own and trains on them."""
