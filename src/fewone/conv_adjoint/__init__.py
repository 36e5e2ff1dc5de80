"""The conv classifier's derivatives, written out: gradients and Hessian-vector products without autograd's graph.

Reading this code. With parameters p, support loss L and inner steps p_k+1 = p_k - a_k * g(p_k), g = dL/dp:

1. forward:        y = layer(x, p), each layer in `layers` and `norm`, kept on a `Tape` (`derivatives`)
2. vjp:            (dx, dp) = J^T dy, last layer first: the gradient g
3. jvp:            y' = J (x', p'), first layer first: the tangent of the logits along p' = v
4. vjp_tangent:    the derivative of 2 along 3, last layer first: the Hessian-vector product H v
5. meta-gradient:  v <- v - H_k (a_k * v), backwards over the steps, from v = gradient of the query loss
                   (`fewone.learners.adjoint`; first order leaves H out)

`convolution` holds the three products of a convolution in two ways, `packing` lays all parameters of a task into one
row, `features` is the same for an embedding that is differentiated once, `heap` keeps freed memory with the process.
Every number here is compared with autograd by a test. Enters: a `Classifier` of `fewone.networks`.
"""
