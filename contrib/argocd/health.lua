-- The health of the kinds of karpenter.metal3.io, as kstatus computes it.
local hs = { status = "Healthy", message = "" }

if obj.metadata.deletionTimestamp ~= nil then
  hs.status, hs.message = "Progressing", "is being deleted"
  return hs
end
if obj.status == nil then
  return hs
end
local observed = obj.status.observedGeneration
if observed ~= nil and observed ~= obj.metadata.generation then
  hs.status, hs.message = "Progressing", "the controller has not seen the present spec yet"
  return hs
end

local conditions = obj.status.conditions or {}
for _, condition in ipairs(conditions) do
  if condition.status == "True" and condition.type == "Reconciling" then
    hs.status, hs.message = "Progressing", condition.message
    return hs
  end
  if condition.status == "True" and condition.type == "Stalled" then
    hs.status, hs.message = "Degraded", condition.message
    return hs
  end
end
for _, condition in ipairs(conditions) do
  if condition.type == "Ready" then
    if condition.status ~= "True" then
      hs.status = "Progressing"
    end
    hs.message = condition.message
  end
end
return hs
