"""A Python function of a query at work: called with many rows at a time, and bad rows searched for when it fails."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from cdc_core.delivery.search import divided
from cdc_core.errors import CdcError, ContractError
from cdc_core.function_registration import FunctionRegistration
from cdc_core.plugins.classes import load_function


class CalledFunction:
    """The function of a registration, loaded. Raises: PluginLoadError."""

    def __init__(self, registration: FunctionRegistration) -> None:
        self._owner = f"function '{registration.name}'"
        self._returns = registration.returns
        self._types = registration.arguments
        self._function = load_function(registration.function, owner=self._owner, install_hint=registration.install_hint)

    def values(self, arguments: Sequence[pa.Array]) -> tuple[pa.Array, dict[int, str]]:
        """Return the value of each row, and by their indexes why the function failed for rows, whose values are null.

        Raises: ContractError when it returns something else than one value of its type for each row; a CdcError of the
        function, which is about no row.
        """
        columns = [array.cast(type_) for array, type_ in zip(arguments, self._types, strict=True)]
        waiting = [pa.RecordBatch.from_arrays(columns, names=[str(index) for index in range(len(columns))])]
        found: list[pa.Array] = []
        failures: dict[int, str] = {}
        place = 0
        while waiting:
            part = waiting.pop()
            if not len(part):
                continue
            try:
                values = self._function(*part.columns)
            except CdcError:
                raise
            except Exception as error:  # a stranger's code
                if len(part) > 1:
                    waiting += [half for (half,) in reversed(list(divided([part], 2)))]
                    continue
                reason = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
                failures[place] = reason.encode("utf-8", "backslashreplace").decode()  # half of a surrogate pair
                values = pa.nulls(1, self._returns)
            found.append(self._checked(values, len(part)))
            place += len(part)
        return (pa.concat_arrays(found) if found else pa.nulls(0, self._returns)), failures

    def _checked(self, values: object, rows: int) -> pa.Array:
        if not isinstance(values, pa.Array):
            raise ContractError(f"{self._owner} returned {type(values).__name__}, not an Arrow array")
        if len(values) != rows:
            raise ContractError(f"{self._owner} returned {len(values):,} values for {rows:,} rows; return one for each")
        if values.type != self._returns:
            raise ContractError(
                f"{self._owner} returned values of the type {values.type}, but is registered with {self._returns}"
            )
        return values
