"""`python -m fewone` is `fewone`."""

from fewone.cli import main

raise SystemExit(main())
