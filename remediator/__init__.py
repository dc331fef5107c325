"""The controller: it takes findings of many nodes, decides, and carries out bounded actions. Nodes never import it."""
