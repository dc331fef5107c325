"""YAML that people write: whatever stands in a file is plain data, or one error in a line.

PyYAML's safe loader runs nothing, but raises what it likes (`2001-99-99` is a ValueError, a deep nest a RecursionError), and a
few lines of aliases stand for more nodes than any memory holds.
"""

from __future__ import annotations

from typing import Any

import yaml

BYTES_MAX = 16 << 20
DEPTH_MAX = 40
NODES_MAX = 1_000_000  # with what aliases repeat; a topology file of 20 000 nodes has 200 000


class YamlTextError(ValueError):
    """A text that is no YAML, or too much of it. The words say where, as far as PyYAML does."""


def read_yaml(data: bytes | str) -> Any:
    """Dictionaries, lists and plain values; None for an empty text.

    Raises:
        YamlTextError: it is too long, no YAML, nested too deep, or holds what YAML has no value for.
    """
    if len(data) > BYTES_MAX:
        raise YamlTextError(f"longer than {BYTES_MAX >> 20} MiB")
    try:
        root = yaml.compose(data, Loader=yaml.SafeLoader)
        if root is None:
            return None
        _check_bounds(root)
        return yaml.constructor.SafeConstructor().construct_document(root)
    except YamlTextError:
        raise
    except RecursionError:
        raise YamlTextError("nested too deep") from None
    except Exception as error:  # PyYAML's constructors raise what they like on odd values
        raise YamlTextError(f"not YAML: {' '.join(str(error).split())}") from error


def _check_bounds(root: yaml.Node) -> None:
    left = [(root, 0)]
    made = 0
    while left:
        node, depth = left.pop()
        made += 1
        if depth > DEPTH_MAX or made > NODES_MAX:
            line = node.start_mark.line + 1
            raise YamlTextError(f"line {line}: nested too deep, or repeated by aliases too often")
        if isinstance(node, yaml.SequenceNode):
            left += [(item, depth + 1) for item in node.value]
        elif isinstance(node, yaml.MappingNode):
            left += [(part, depth + 1) for pair in node.value for part in pair]
