"""Operations: views and copies, joining, gathering, padding, casts, codes, equality."""
