"""Tours: the public tests of other servers, run against `headrace serve`; not run by CI."""
