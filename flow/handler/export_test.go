package handler

// SaidNotYet is for tests: the meaning of the output of a handler that ends with ExitTryAgain.
var SaidNotYet = notYet
