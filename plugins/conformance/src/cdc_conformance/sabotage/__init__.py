"""Broken plugins, one for each promise: each must fail exactly the test of its promise, or that test proves nothing.

Each of the modules `sinks`, `encoders` and `rangefeeds` has

- `SUITE`: a subclass of the kind's suite with the reference component and all its fixtures, every capability declared;
- `SABOTEURS`: the name of each promise's test -> the registration of the component that breaks this promise.

The table of what fails with whom: `python -m cdc_conformance.sabotage`.
"""
