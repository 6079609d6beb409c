"""Changes of a changefeed's definition, as its user would make them in the file."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cdc_core.config.interpolation import escaped
from cdc_core.config.listed_tables import matched, namesakes, same_entry, watches
from cdc_core.errors import ConfigError
from cdc_core.options import did_you_mean
from cdc_core.queries.selection import Selection

_MASK_KEY = "mask_key"
_REMEDIES = {
    "source": "create another job",
    "name": "create another job",
    "tables": "use --add and --drop",
    "query": "create another job",
    "functions": "create another job",
    "table": "create another job",
    "options": "name the option itself",
    "spark": "name the Spark property itself, such as spark.executor.memory",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Alteration:
    """Tables to add and to drop, and values to set and to unset: options, `sink`, `format`, or Spark properties.

    Values are texts as in a file, in which `${VARIABLE}` is a reference. Names of tables cannot contain references.
    """

    add: Sequence[str] = ()
    drop: Sequence[str] = ()
    set: Mapping[str, str] = field(default_factory=dict)
    unset: Collection[str] = ()

    @classmethod
    def parse(
        cls, *, add: Sequence[str], drop: Sequence[str], assignments: Sequence[str], unset: Sequence[str]
    ) -> Alteration:
        """Return the alteration with *assignments* written as `NAME=VALUE`. Raises: ConfigError."""
        found = assigned(assignments)
        for name in (*found, *unset):
            _require_alterable(name)
        for name in unset:
            if name in found:
                raise ConfigError(f"'{name}' is both set and unset; keep one of them")
            if name in ("sink", "format"):
                raise ConfigError(f"'{name}' cannot be unset; set another value with --set {name}=VALUE")
        return cls(add=add, drop=drop, set=found, unset=unset)

    def applied(self, written: Mapping[str, Any], tables: Sequence[str], schema: str) -> dict[str, Any]:
        """Return *written*, as `Changefeed.written`, with the changes. *tables* are its tables without references.

        Those that are listed without a schema are in *schema*.

        Raises: ConfigError.
        """
        changed = {key: value for key, value in written.items() if key not in ("options", "spark")}
        options, spark = dict(written.get("options", {})), dict(written.get("spark", {}))
        unhashed = False
        if self.add or self.drop:
            if written.get("query"):
                raise ConfigError("a changefeed with a query has one table; create another job for other tables")
            remaining = changed_tables(tables, self.add, self.drop, schema)
            changed["tables"] = escaped(remaining)
            if "table" in changed:
                before, changed["table"] = changed["table"], remaining_sections(changed["table"], tables, remaining)
                unhashed = _hashes(before) and not _hashes(changed["table"])
        for name in self.unset:
            if unhashed and _folded(name) == _MASK_KEY:
                continue
            table = spark if _is_spark(name) else options
            if not _remove(table, name):
                raise ConfigError(f"'{name}' is not set{did_you_mean(name, table)}")
        for name, value in self.set.items():
            if name in ("sink", "format"):
                changed[name] = value
                continue
            table = spark if _is_spark(name) else options
            _remove(table, name)
            table[name] = value
        if unhashed and not any(_folded(name) == _MASK_KEY for name in self.set):
            _remove(options, _MASK_KEY)
        return {**changed, "options": options, "spark": spark}

    def __str__(self) -> str:
        """What is changed, for people, without values: they may be secret."""
        parts = {"added": self.add, "dropped": self.drop, "set": self.set, "unset": self.unset}
        return "; ".join(f"{verb} {', '.join(names)}" for verb, names in parts.items() if names)


def changed_tables(tables: Sequence[str], add: Sequence[str], drop: Sequence[str], schema: str) -> list[str]:
    """Return *tables* with and without those, however each is spelled. Raises: ConfigError.

    A table that only a pattern means is excluded.
    """
    changed, excluded = list(tables), list[str]()
    for table in drop:
        if any(same_entry(table, each, schema) for each in add):
            raise ConfigError(f"table '{table}' is both added and dropped; to emit its rows again, use `cdc rescan`")
        name = matched(tables, table, schema)
        if any(same_entry(table, each, schema) for each in tables):
            changed = [each for each in changed if not same_entry(table, each, schema)]
        elif name is None:
            raise ConfigError(f"the changefeed has no table '{table}'{did_you_mean(table, tables)}")
        else:
            excluded.append(f"!{name}")
    for table in dict.fromkeys(add):
        there = next((each for each in changed if same_entry(table, each, schema)), None)
        if there is not None:
            spelled = "" if there == table else f", as '{there}'"
            raise ConfigError(f"the changefeed already has the table '{table}'{spelled}")
        changed.append(table)
    changed += dict.fromkeys(excluded)
    if not changed:
        raise ConfigError("no table would be left; to end the changefeed, use `cdc drop`, or `cdc cancel` for a job")
    return changed


def remaining_sections(sections: Mapping[str, Any], before: Sequence[str], now: Sequence[str]) -> dict[str, Any]:
    """Return the sections of tables without those of tables that were watched *before*, and are not watched *now*."""

    def stays(table: str) -> bool:
        others = namesakes(before, table)
        return watches(now, table, but=others) or not watches(before, table, but=others)

    return {table: section for table, section in sections.items() if stays(table)}


def _hashes(sections: Mapping[str, Any]) -> bool:
    """Return whether a mask in *sections* hashes values, which is what the option mask_key is for."""
    return any(Selection.parse(table, section).hashes for table, section in sections.items())


def _require_alterable(name: str) -> None:
    remedy = _REMEDIES.get("table" if name.startswith("table.") else name)
    if remedy is not None:
        raise ConfigError(f"'{name}' cannot be altered; {remedy}")


def _is_spark(name: str) -> bool:
    return name == "master" or name.startswith("spark.")


def _remove(table: dict[str, Any], name: str) -> bool:
    """Remove *name*, in any spelling, from a table of options; return whether it was there.

    `kafka.x` may be written as that, or as `x` in the table `kafka`. Without *name*'s dot, all of a table goes.
    """
    found = False
    for key, value in list(table.items()):
        head, wanted = _folded(key), _folded(name)
        if head == wanted or head.startswith(f"{wanted}."):
            del table[key]
            found = True
        elif isinstance(value, Mapping) and wanted.startswith(f"{head}."):
            inner = dict(value)
            found |= _remove(inner, name[len(key) + 1 :])
            table[key] = inner
    return found


def _folded(name: str) -> str:
    """Return *name* so that `AWS_REGION` and `aws_region` are the same; entries of tables keep their case."""
    head, dot, rest = name.partition(".")
    return head.lower() + dot + rest


def assigned(assignments: Sequence[str]) -> dict[str, str]:
    """Return options by name, each written as `NAME=VALUE`. Raises: ConfigError."""
    found: dict[str, str] = {}
    for assignment in assignments:
        name, equals, value = assignment.partition("=")
        if not (name and equals):
            raise ConfigError(f"--set {assignment}: the value is missing; write --set NAME=VALUE")
        if name in found:
            raise ConfigError(f"--set {name} is given twice; keep one of them")
        found[name] = value
    return found
