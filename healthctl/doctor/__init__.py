"""What a machine lacks for this product, why each thing matters, and what to do: one file per part of the machine."""
