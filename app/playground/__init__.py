"""The page on which tiny networks train while one watches."""
