"""What makes the documents of the product itself; nothing that is installed imports it."""
