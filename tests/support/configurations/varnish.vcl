$usage
