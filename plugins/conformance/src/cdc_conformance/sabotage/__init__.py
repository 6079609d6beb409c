"""Broken plugins, at least one for each promise: each must fail exactly its test, or the test proves nothing.

Each of the modules `sinks`, `histories`, `encoders`, `rangefeeds` and `functions` has

- `SUITE`: a subclass of the suite with the reference component, all its fixtures, and every capability declared;
- `SABOTEURS`: the name of each promise's test -> the registration of the component that breaks the promise. A mistake
  is a method in place of one of the reference's, marked with the promise that it breaks: see `breaking`. A promise that
  can be broken in several ways has the name of each in brackets.

`python -m cdc_conformance.sabotage` shows which tests fail with which saboteur.
"""
