"""Did it get slower, wrong or go missing? :mod:`.history` looks back over many nights."""
