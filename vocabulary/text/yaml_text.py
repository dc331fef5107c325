"""YAML that people write: a file's content is plain data, or one error of one line.

PyYAML's safe loader runs no code, but raises arbitrary exceptions (`2001-99-99` is a ValueError, a deep nest a
RecursionError), and a few lines of aliases expand to more nodes than any memory holds.
"""

from __future__ import annotations

from typing import Any

import yaml

BYTES_MAX = 16 << 20
DEPTH_MAX = 40
NODES_MAX = 1_000_000  # aliases expanded; a topology file of 20 000 nodes has 200 000


class YamlTextError(ValueError):
    """A text that is not YAML, or too large. The message says where, as far as PyYAML does."""


def read_yaml(data: bytes | str) -> Any:
    """Return dictionaries, lists and plain values; None for an empty text.

    Raises:
        YamlTextError: it is too long, not YAML, nested too deep, or has an invalid value.
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
    except Exception as error:  # PyYAML's constructors raise arbitrary exceptions on odd values
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
