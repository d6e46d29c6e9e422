# Sourced by the scripts that run PyTorch. Debian's has threads of OpenMP, and an OpenBLAS with threads of its own keeps them off the
# cores: with two threads PyTorch is then up to four times as slow. Debian's libopenblas0-openmp has none; OPENMP_BLAS is the folder
# that PyTorch takes it from, found if not given.
OPENMP_BLAS=${OPENMP_BLAS-$(find /usr/lib -maxdepth 2 -name openblas-openmp 2> /dev/null | head -1)}
TORCH="$PYTHON"
if [ -n "$OPENMP_BLAS" ]; then
    TORCH="env LD_LIBRARY_PATH=$OPENMP_BLAS${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} $PYTHON"
elif ! "$PYTHON" -c 'import torch, sys; sys.exit(not torch.backends.mkl.is_available())'; then
    echo "no OpenBLAS with OpenMP's threads (libopenblas0-openmp): PyTorch's own wait for each other" >&2
fi
