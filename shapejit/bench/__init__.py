"""What is measured, and how: the tables of cases (`suites`), and `shapejit bench`.

The tables import nothing of the package around them: a case is given the package that it measures.
So `benchmarks/` loads them by path, and runs today's cases against the packages of older commits.
"""
